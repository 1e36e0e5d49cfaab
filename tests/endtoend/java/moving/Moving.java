import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** A producer that says each message that is acknowledged, and a push consumer, until a line comes. Their settings are the client's own, but for how often they ask for routes. Arguments: name servers, seconds. */
public class Moving {
    private static final int ROUTES_EVERY_MS = 1000;
    private static final long PAUSE_MS = 5;

    public static void main(String[] arguments) {
        Patience.run(arguments[1], () -> run(arguments[0]));
    }

    private static void run(String names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("moving-producers");
        producer.setNamesrvAddr(names);
        producer.setPollNameServerInterval(ROUTES_EVERY_MS);
        producer.start();
        Patience.tried(() -> producer.send(new Message("Moving", "-1".getBytes())));
        Set<Integer> found = ConcurrentHashMap.newKeySet();
        Patience.tried(() -> consumer(names, found));
        Set<Integer> acknowledged = new TreeSet<>();
        for (int number = 0; System.in.available() == 0; number++) {
            Message message = new Message("Moving", ("" + number).getBytes());
            // The client's own three tries end at once where nothing listens: a program that is to go on sends again.
            if (Patience.tried(() -> producer.send(message)).getSendStatus() == SendStatus.SEND_OK) {
                acknowledged.add(number);
                System.out.println("acknowledged " + number);
            }
            Thread.sleep(PAUSE_MS);
        }
        long end = System.currentTimeMillis() + Patience.ms;
        while (!found.containsAll(acknowledged) && System.currentTimeMillis() < end) {
            Thread.sleep(PAUSE_MS);
        }
        acknowledged.removeAll(found);
        System.out.println("missing " + acknowledged);
    }

    private static DefaultMQPushConsumer consumer(String names, Set<Integer> found) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("moving-consumers");
        consumer.setNamesrvAddr(names);
        consumer.setPollNameServerInterval(ROUTES_EVERY_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Moving", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> found.add(Integer.parseInt(new String(one.getBody()))));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Patience.start(consumer::start, consumer::shutdown);
        return consumer;
    }
}
