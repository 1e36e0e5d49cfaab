import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** What RocketMQ's own Java client does at a front of Penstock; prints one line per claim. Arguments: name server, seconds, AccessKey, secret key. */
public class Unmodified {
    static String names;
    static RPCHook login;

    public static void main(String[] arguments) {
        Patience.run(arguments[1], () -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        names = arguments[0];
        login = new AclClientRPCHook(new SessionCredentials(arguments[2], arguments[3]));
        if (arguments.length > 4) {
            Further.second();
            return;
        }
        DefaultMQProducer producer = started(new DefaultMQProducer("java-producers", login));
        SendResult first = send(producer);
        consume();
        select();
        transactions();
        System.out.println("by offset id: " + body(Patience.tried(() -> producer.viewMessage("Java", first.getOffsetMsgId()))));
        System.out.println("by unique id: " + body(Patience.tried(() -> producer.viewMessage("Java", first.getMsgId()))));
        ordered(producer);
        Further.all(producer, arguments);
        System.out.println("done");
    }

    /** Starts a producer, which has then found the name server. */
    static <T extends DefaultMQProducer> T started(T producer) throws Exception {
        Patience.at(names, producer).setSendMsgTimeout((int) Patience.ms);
        producer.start();
        Patience.tried(() -> producer.fetchPublishMessageQueues("TBW102"));
        return producer;
    }

    static SendResult send(DefaultMQProducer producer) throws Exception {
        SendResult first = producer.send(new Message("Java", "A", "k1", "single".getBytes()));
        System.out.println("single: " + first.getSendStatus());
        System.out.println("at: Java:" + first.getMessageQueue().getQueueId() + " " + first.getQueueOffset());
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            batch.add(new Message("Java", "B", "batch" + number, ("batch" + number).getBytes()));
        }
        System.out.println("batch: " + producer.send(batch).getSendStatus());
        Message delayed = new Message("Java", "A", "delayed", "delayed".getBytes());
        delayed.setDelayTimeLevel(1);
        System.out.println("delayed: " + producer.send(delayed).getSendStatus());
        System.out.println("compressed: " + producer.send(new Message("Java", "A", "big", new byte[20000])).getSendStatus());
        Message selected = new Message("Java", "A", "selected", "selected".getBytes());
        selected.putUserProperty("n", "7");
        producer.send(selected);
        producer.sendOneway(new Message("Java", "A", "oneway", "oneway".getBytes()));
        return first;
    }

    interface Settings {
        void set(DefaultMQPushConsumer consumer) throws Exception;
    }

    /** A consumer with these settings that runs. One whose start fails is given up for another. */
    static DefaultMQPushConsumer consumer(String group, Settings settings) throws Exception {
        return Patience.tried(() -> {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, login, new AllocateMessageQueueAveragely());
            Patience.at(names, consumer).setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            settings.set(consumer);
            Patience.start(consumer::start, consumer::shutdown);
            return consumer;
        });
    }

    static void consume() throws Exception {
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer("java-consumers", made -> {
            made.subscribe("Java", "*");
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt one : messages) {
                    found.add(one.getTopic() + ":" + body(one) + ":" + one.getReconsumeTimes());
                    if (body(one).equals("single") && one.getReconsumeTimes() == 0) {
                        context.setDelayLevelWhenNextConsume(1);
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        });
        await(() -> found.contains("Java:single:1") && new TreeSet<>(found).size() >= 9);
        consumer.shutdown();
        System.out.println("consumed: " + new TreeSet<>(found));
    }

    static void select() throws Exception {
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer("java-selecting", made -> {
            made.subscribe("Java", MessageSelector.bySql("n > 5"));
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(one -> found.add(body(one)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        });
        await(() -> !found.isEmpty());
        consumer.shutdown();
        System.out.println("selected: " + found);
    }

    static void transactions() throws Exception {
        Queue<String> checked = new ConcurrentLinkedQueue<>();
        Queue<String> found = new ConcurrentLinkedQueue<>();
        TransactionMQProducer producer = new TransactionMQProducer("java-transactions", login);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                return (LocalTransactionState) outcome;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.add(body(message));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        started(producer);
        for (LocalTransactionState outcome : LocalTransactionState.values()) {
            producer.sendMessageInTransaction(new Message("Settled", outcome.name().getBytes()), outcome);
        }
        DefaultMQPushConsumer consumer = consumer("java-settled", made -> {
            made.subscribe("Settled", "*");
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(one -> found.add(body(one)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        });
        await(() -> found.size() >= 2);
        System.out.println("checked: " + new TreeSet<>(checked));
        System.out.println("settled: " + new TreeSet<>(found));
        producer.shutdown();
        consumer.shutdown();
    }

    static void ordered(DefaultMQProducer producer) throws Exception {
        for (int number = 0; number < 20; number++) {
            producer.send(new Message("Ordered", ("" + number).getBytes()), (queues, message, key) -> queues.get(1), 1);
        }
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer("java-ordered", made -> {
            made.subscribe("Ordered", "*");
            made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(one -> found.add(body(one)));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        });
        await(() -> found.size() >= 20);
        System.out.println("ordered: " + String.join(" ", found));
        consumer.shutdown();
        DefaultLitePullConsumer pulling = Patience.tried(Unmodified::pulling);
        List<String> pulled = new ArrayList<>();
        long end = System.currentTimeMillis() + Patience.ms;
        while (pulled.size() < 20 && System.currentTimeMillis() < end) {
            pulling.poll(500).forEach(one -> pulled.add(body(one)));
        }
        System.out.println("pulled: " + String.join(" ", pulled));
        pulling.shutdown();
    }

    private static DefaultLitePullConsumer pulling() throws Exception {
        DefaultLitePullConsumer consumer = Patience.at(names, new DefaultLitePullConsumer("java-pulling", login));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Ordered", "*");
        Patience.start(consumer::start, consumer::shutdown);
        return consumer;
    }

    static String body(MessageExt message) {
        return message.getBody().length > 1000 ? message.getBody().length + " bytes" : new String(message.getBody());
    }

    static void await(BooleanSupplier done) throws InterruptedException {
        long end = System.currentTimeMillis() + Patience.ms;
        while (!done.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
    }
}
