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
    static long patience;
    static RPCHook login;

    public static void main(String[] arguments) throws Exception {
        names = arguments[0];
        patience = Long.parseLong(arguments[1]) * 1000;
        login = new AclClientRPCHook(new SessionCredentials(arguments[2], arguments[3]));
        DefaultMQProducer producer = new DefaultMQProducer("java-producers", login);
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout((int) patience);
        producer.start();
        SendResult first = send(producer);
        consume();
        select();
        transactions();
        System.out.println("by offset id: " + body(producer.viewMessage("Java", first.getOffsetMsgId())));
        System.out.println("by unique id: " + body(producer.viewMessage("Java", first.getMsgId())));
        ordered(producer);
        System.out.println("done");
        System.exit(0);
    }

    static SendResult send(DefaultMQProducer producer) throws Exception {
        SendResult first = producer.send(new Message("Java", "A", "k1", "single".getBytes()));
        System.out.println("single: " + first.getSendStatus());
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

    static DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, login, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    static void consume() throws Exception {
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer("java-consumers");
        consumer.subscribe("Java", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                found.add(one.getTopic() + ":" + body(one) + ":" + one.getReconsumeTimes());
                if (body(one).equals("single") && one.getReconsumeTimes() == 0) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await(() -> found.contains("Java:single:1") && new TreeSet<>(found).size() >= 9);
        consumer.shutdown();
        System.out.println("consumed: " + new TreeSet<>(found));
    }

    static void select() throws Exception {
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer("java-selecting");
        consumer.subscribe("Java", MessageSelector.bySql("n > 5"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> found.add(body(one)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await(() -> !found.isEmpty());
        consumer.shutdown();
        System.out.println("selected: " + found);
    }

    static void transactions() throws Exception {
        Queue<String> checked = new ConcurrentLinkedQueue<>();
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer("java-settled");
        consumer.subscribe("Settled", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> found.add(body(one)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer("java-transactions", login);
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout((int) patience);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                return (LocalTransactionState) outcome;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.add(body(message));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState outcome : LocalTransactionState.values()) {
            producer.sendMessageInTransaction(new Message("Settled", outcome.name().getBytes()), outcome);
        }
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
        DefaultMQPushConsumer consumer = consumer("java-ordered");
        consumer.subscribe("Ordered", "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(one -> found.add(body(one)));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await(() -> found.size() >= 20);
        System.out.println("ordered: " + String.join(" ", found));
        consumer.shutdown();
        DefaultLitePullConsumer pulling = new DefaultLitePullConsumer("java-pulling", login);
        pulling.setNamesrvAddr(names);
        pulling.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        pulling.subscribe("Ordered", "*");
        pulling.start();
        List<String> pulled = new ArrayList<>();
        long end = System.currentTimeMillis() + patience;
        while (pulled.size() < 20 && System.currentTimeMillis() < end) {
            pulling.poll(500).forEach(one -> pulled.add(body(one)));
        }
        System.out.println("pulled: " + String.join(" ", pulled));
        pulling.shutdown();
    }

    static String body(MessageExt message) {
        return message.getBody().length > 1000 ? message.getBody().length + " bytes" : new String(message.getBody());
    }

    static void await(BooleanSupplier done) throws InterruptedException {
        long end = System.currentTimeMillis() + patience;
        while (!done.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
    }
}
