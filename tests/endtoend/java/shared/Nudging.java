/** Ends RocketMQ's clients sooner: one that ends waits up to 3 s for a thread that looks for news, and an interrupt has it look at once. */
final class Nudging {
    private static final long PAUSE_MS = 20;

    private Nudging() {}

    static void start() {
        Thread nudging = new Thread(Nudging::nudge);
        nudging.setDaemon(true);
        nudging.start();
    }

    private static void nudge() {
        while (true) {
            for (Thread one : Thread.getAllStackTraces().keySet()) {
                if (one.getName().startsWith("NettyEventExecutor")) {
                    one.interrupt();
                }
            }
            try {
                Thread.sleep(PAUSE_MS);
            } catch (InterruptedException error) {
                return;
            }
        }
    }
}
