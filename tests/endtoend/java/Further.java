import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Further claims of {@link Unmodified}: one line each. */
class Further {
    static void all(DefaultMQProducer producer, String[] arguments) throws Exception {
        keys(producer);
        exactTime(producer);
        broadcast(producer);
        orderedRetry(producer);
        orderedInVain(producer);
        deadLetter(producer);
        requestReply(producer);
        fromDevice();
        oneIsKilled(producer, arguments);
    }

    /** Each word of a message's keys finds it. */
    static void keys(DefaultMQProducer producer) throws Exception {
        producer.send(new Message("Keys", "A", "order-17 customer-4", "both".getBytes()));
        List<String> found = new ArrayList<>();
        for (String key : new String[] {"order-17", "customer-4"}) {
            long now = System.currentTimeMillis();
            Patience.tried(() -> producer.queryMessage("Keys", key, 32, now - 600_000, now + 600_000)).getMessageList()
                .forEach(one -> found.add(key + "=" + Unmodified.body(one)));
        }
        System.out.println("by keys: " + found);
    }

    static void exactTime(DefaultMQProducer producer) throws Exception {
        Queue<Long> early = new ConcurrentLinkedQueue<>();
        long due = System.currentTimeMillis() + 2500;
        Message timed = new Message("Timed", ("" + due).getBytes());
        MessageAccessor.putProperty(timed, "TIMER_DELIVER_MS", "" + due);
        producer.send(timed);
        DefaultMQPushConsumer consumer = listen("java-timed", "Timed", one -> {
            early.add(Long.parseLong(Unmodified.body(one)) - System.currentTimeMillis());
            return true;
        });
        Unmodified.await(() -> !early.isEmpty());
        System.out.println("at its time: " + (early.size() == 1 && early.peek() <= 0));
        consumer.shutdown();
    }

    static void broadcast(DefaultMQProducer producer) throws Exception {
        for (int number = 0; number < 8; number++) {
            producer.send(new Message("Broadcast", ("" + number).getBytes()));
        }
        List<Queue<String>> found = List.of(new ConcurrentLinkedQueue<>(), new ConcurrentLinkedQueue<>());
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (Queue<String> mine : found) {
            DefaultMQPushConsumer consumer = Unmodified.consumer("java-broadcast", made -> {
                made.setInstanceName("broadcast" + consumers.size());
                made.setMessageModel(made.getMessageModel().valueOf("BROADCASTING")); // 4.x and 5.x have it in different packages
                made.subscribe("Broadcast", "*");
                made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    messages.forEach(one -> mine.add(Unmodified.body(one)));
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            });
            consumers.add(consumer);
        }
        Unmodified.await(() -> found.stream().allMatch(mine -> mine.size() >= 8));
        found.forEach(mine -> System.out.println("broadcast: " + new TreeSet<>(mine) + " " + mine.size()));
        consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    static void orderedRetry(DefaultMQProducer producer) throws Exception {
        for (int number = 0; number < 5; number++) {
            producer.send(new Message("Again", ("" + number).getBytes()), (queues, message, key) -> queues.get(0), 0);
        }
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = Unmodified.consumer("java-again", made -> {
            made.subscribe("Again", "*");
            made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                String one = Unmodified.body(messages.get(0));
                boolean isFirst = !found.contains(one);
                found.add(one);
                return one.equals("2") && isFirst ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        });
        Unmodified.await(() -> found.size() >= 6);
        System.out.println("ordered again: " + String.join(" ", found));
        consumer.shutdown();
    }

    static void deadLetter(DefaultMQProducer producer) throws Exception {
        producer.send(new Message("Failing", "A", "k", "fails".getBytes()));
        Queue<String> tried = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = Unmodified.consumer("java-failing", made -> {
            made.setMaxReconsumeTimes(1);
            made.subscribe("Failing", "*");
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(one -> tried.add(one.getTopic() + ":" + one.getReconsumeTimes()));
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        });
        Unmodified.await(() -> tried.size() >= 2);
        Queue<String> dead = deadLetters(producer, "java-failing");
        System.out.println("dead: " + tried + " " + dead);
        consumer.shutdown();
    }

    /** An ordered queue goes on behind a message that failed as often as it may. */
    static void orderedInVain(DefaultMQProducer producer) throws Exception {
        for (String body : new String[] {"bad", "good"}) {
            producer.send(new Message("Vain", body.getBytes()), (queues, message, key) -> queues.get(0), 0);
        }
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = Unmodified.consumer("java-vain", made -> {
            made.setMaxReconsumeTimes(1);
            made.subscribe("Vain", "*");
            made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                String one = Unmodified.body(messages.get(0));
                found.add(one + ":" + messages.get(0).getReconsumeTimes());
                return one.equals("bad") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        });
        Unmodified.await(() -> found.contains("good:0"));
        System.out.println("ordered in vain: " + String.join(" ", found) + " " + deadLetters(producer, "java-vain"));
        consumer.shutdown();
    }

    /** Waits for a dead letter of a group. */
    static Queue<String> deadLetters(DefaultMQProducer producer, String group) throws Exception {
        Queue<String> dead = new ConcurrentLinkedQueue<>();
        Patience.tried(() -> producer.fetchPublishMessageQueues("%DLQ%" + group)); // the topic is made with its first letter
        DefaultMQPushConsumer mourner = listen(group + "-mourning", "%DLQ%" + group, one -> dead.add(Unmodified.body(one)));
        Unmodified.await(() -> !dead.isEmpty());
        mourner.shutdown();
        return dead;
    }

    static void requestReply(DefaultMQProducer producer) throws Exception {
        producer.send(new Message("Questions", "none".getBytes()));
        DefaultMQPushConsumer consumer = listen("java-answering", "Questions", one -> {
            if (Unmodified.body(one).equals("none")) {
                return true;
            }
            try {
                producer.send(MessageUtil.createReplyMessage(one, ("re: " + Unmodified.body(one)).getBytes()));
                return true;
            } catch (Exception error) {
                error.printStackTrace();
                return false;
            }
        });
        Message answer = producer.request(new Message("Questions", "why".getBytes()), Patience.ms);
        System.out.println("answer: " + new String(answer.getBody()));
        consumer.shutdown();
    }

    /** A device has published before this began. */
    static void fromDevice() throws Exception {
        Queue<String> found = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = listen("java-devices", "Device", one -> found.add(Unmodified.body(one)));
        Unmodified.await(() -> !found.isEmpty());
        System.out.println("from device: " + found);
        consumer.shutdown();
    }

    /** Two consumers of a group, of which one is a process that is killed: the other one takes in the rest. */
    static void oneIsKilled(DefaultMQProducer producer, String[] arguments) throws Exception {
        Queue<String> found = new ConcurrentLinkedQueue<>();
        producer.send(new Message("Two", "first".getBytes()));
        DefaultMQPushConsumer consumer = listen("java-two", "Two", one -> found.add(Unmodified.body(one)));
        List<String> command = new ArrayList<>(List.of("java"));
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments()); // the same settings of the machine
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), "Unmodified"));
        command.addAll(List.of(arguments));
        command.add("second");
        Process other = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            BufferedReader said = new BufferedReader(new InputStreamReader(other.getInputStream()));
            boolean hadSome = false;
            long end = System.currentTimeMillis() + Patience.ms;
            while (!hadSome && System.currentTimeMillis() < end) { // until the second one has some of them
                producer.send(new Message("Two", "before".getBytes()));
                Thread.sleep(20);
                hadSome = said.ready() && said.readLine().equals("taken");
            }
            other.destroyForcibly().waitFor();
            for (int number = 0; number < 100; number++) {
                producer.send(new Message("Two", ("after" + number).getBytes()));
            }
            Unmodified.await(() -> new TreeSet<>(found).stream().filter(one -> one.startsWith("after")).count() >= 100);
            long after = new TreeSet<>(found).stream().filter(one -> one.startsWith("after")).count();
            System.out.println("one killed: " + hadSome + " " + after);
        } finally {
            other.destroyForcibly();
            consumer.shutdown();
        }
    }

    /** What the killed process does: says when it has taken a message. */
    static void second() throws Exception {
        listen("java-two", "Two", one -> {
            System.out.println("taken");
            return true;
        });
        Thread.sleep(Patience.ms);
    }

    interface Taken {
        boolean take(MessageExt message);
    }

    static DefaultMQPushConsumer listen(String group, String topic, Taken taken) throws Exception {
        return Unmodified.consumer(group, made -> {
            made.subscribe(topic, "*");
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean isDone = true;
                for (MessageExt one : messages) {
                    isDone &= taken.take(one);
                }
                return isDone ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        });
    }
}
