import java.util.concurrent.Callable;
import org.apache.rocketmq.client.ClientConfig;

/** How the programs get by on a starved machine, where what the client does by itself may time out: set-up is tried again, and an error ends the program at once, whatever threads the client has. */
final class Patience {
    static long ms;
    private static final long PAUSE_MS = 100;

    /** What runs, and may fail. */
    interface Program {
        void run() throws Exception;
    }

    private Patience() {}

    /** Runs a program to its end. The seconds are for each wait of it. */
    static void run(String seconds, Program program) {
        ms = Long.parseLong(seconds) * 1000;
        Nudging.start();
        try {
            program.run();
            System.exit(0);
        } catch (Throwable error) {
            System.out.flush();
            error.printStackTrace();
            System.exit(1);
        }
    }

    /** Starts a client, and ends it where that fails. */
    static void start(Program start, Runnable end) throws Exception {
        try {
            start.run();
        } catch (Exception error) {
            end.run();
            throw error;
        }
    }

    /** A client at these name servers which waits longer for connections and answers than the usual 3 s. */
    static <T extends ClientConfig> T at(String names, T client) {
        System.setProperty("com.rocketmq.remoting.client.connect.timeout", "" + ms);
        client.setNamesrvAddr(names);
        client.setMqClientApiTimeout((int) ms);
        return client;
    }

    /** What is wanted, tried until it comes without an error. */
    static <T> T tried(Callable<T> wanted) throws Exception {
        long end = System.currentTimeMillis() + ms;
        while (true) {
            try {
                return wanted.call();
            } catch (Exception error) {
                if (System.currentTimeMillis() > end) {
                    throw error;
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }
}
