import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Scanner;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** RocketMQ's mqadmin: runs the commands that come as lines, each followed by what it is to print, tabs between and spaces apart. Of two texts with a bar between one will do. A consumer runs beside, of which some commands tell. Arguments: name server, seconds, AccessKey, secret key. */
public class Jobs {
    private static final long PAUSE_MS = 200;

    public static void main(String[] arguments) {
        Patience.run(arguments[1], () -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        RPCHook login = new AclClientRPCHook(new SessionCredentials(arguments[2], arguments[3]));
        Patience.tried(() -> watch(arguments[0], login));
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] order = lines.nextLine().split("\t");
            carryOut(order, login);
            System.out.println("done: " + order[0]);
        }
    }

    /** Gives a command until it prints all that is wanted: the client of 5.5.0 may look at the answer to a query before it has
        taken it in, and its time runs out on a busy machine. */
    private static void carryOut(String[] order, RPCHook login) throws InterruptedException {
        long end = System.currentTimeMillis() + Patience.ms;
        while (true) {
            String said = said(order[0], login);
            String words = String.join(" ", said.trim().split("\\s+"));
            if (Arrays.stream(order).skip(1).allMatch(one -> Arrays.stream(one.split("\\|")).anyMatch(words::contains))) {
                return;
            }
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("not said: " + String.join("\t", order) + "\n" + said);
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    private static String said(String line, RPCHook login) {
        PrintStream out = System.out;
        PrintStream errors = System.err;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream said = new PrintStream(bytes, true);
        System.setOut(said);
        System.setErr(said);
        MQAdminStartup.main0(line.split(" "), login);
        System.setOut(out);
        System.setErr(errors);
        return bytes.toString();
    }

    private static DefaultMQPushConsumer watch(String names, RPCHook login) throws Exception {
        DefaultMQPushConsumer consumer = Patience.at(names, new DefaultMQPushConsumer("watchers", login));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("watcher");
        consumer.subscribe("Watched", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        Patience.start(consumer::start, consumer::shutdown);
        return consumer;
    }
}
