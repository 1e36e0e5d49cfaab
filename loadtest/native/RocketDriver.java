import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A program with RocketMQ's Java client, as loadtest/native/worker.py is one with ours. Its argument is the name
 * server's address. It reads orders, one a line, carries each out and answers:
 *
 * <pre>
 * send TOPIC BATCH IN_FLIGHT BODY_BYTES WARM_MS MEASURE_MS  ->  begin DONE NANOS, end DONE NANOS, sent ALL
 * check TOPIC COUNT BODY_BYTES                              ->  checked COUNT NANOS
 * </pre>
 *
 * or {@code error REASON}. It stays from run to run, so that what is measured is compiled by then.
 */
public final class RocketDriver {
    private static final int NUMBER_BYTES = 8;
    private static final long PATIENCE_MS = 45_000;
    private static final long LOOK_MS = 100;

    private final String servers;
    private final DefaultMQProducer producer = new DefaultMQProducer("loadtest");
    private final AtomicLong done = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>();
    private long next;
    private long began;
    private long ended;

    private RocketDriver(String servers) {
        this.servers = servers;
    }

    public static void main(String[] arguments) throws Exception {
        RocketDriver driver = new RocketDriver(arguments[0]);
        driver.producer.setNamesrvAddr(arguments[0]);
        driver.producer.setRetryTimesWhenSendFailed(0); // a message that is sent again may be stored twice
        driver.producer.setRetryTimesWhenSendAsyncFailed(0);
        driver.producer.setSendMsgTimeout(10_000);
        driver.producer.start();
        say("ready");
        Scanner orders = new Scanner(System.in);
        while (orders.hasNextLine()) {
            try {
                driver.perform(orders.nextLine().split(" "));
            } catch (Exception error) {
                say("error " + String.valueOf(error).replace('\n', ' '));
            }
        }
        driver.producer.shutdown();
        System.exit(0);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private void perform(String[] order) throws Exception {
        if (order[0].equals("send")) {
            send(order);
        } else {
            say("checked " + check(order[1], Integer.parseInt(order[2]), Integer.parseInt(order[3])));
        }
    }

    private void send(String[] order) throws Exception {
        String topic = order[1];
        int batch = Integer.parseInt(order[2]);
        int inFlight = Integer.parseInt(order[3]);
        int bodyBytes = Integer.parseInt(order[4]);
        done.set(0);
        failure.set(null);
        next = 0;
        began = ended = 0;
        long warmUntil = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Long.parseLong(order[5]));
        long measured = TimeUnit.MILLISECONDS.toNanos(Long.parseLong(order[6]));
        if (batch > 1) {
            while (goesOn(warmUntil, measured)) {
                sendBatch(topic, batch, bodyBytes);
            }
        } else {
            Semaphore room = new Semaphore(inFlight);
            SendCallback callback = callback(room);
            while (goesOn(warmUntil, measured)) {
                room.acquire();
                producer.send(message(topic, bodyBytes), callback);
            }
            if (!room.tryAcquire(inFlight, PATIENCE_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("messages were not acknowledged");
            }
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        say("sent " + next);
    }

    /** Whether the window is still open; says when it opens and when it closes. */
    private boolean goesOn(long warmUntil, long measured) {
        long now = System.nanoTime();
        if (began == 0 && now >= warmUntil) {
            began = now;
            say("begin " + done.get() + " " + now);
        } else if (began != 0 && now >= began + measured) {
            ended = now;
            say("end " + done.get() + " " + now);
        }
        return ended == 0 && failure.get() == null;
    }

    private void sendBatch(String topic, int count, int bodyBytes) throws Exception {
        List<Message> messages = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            messages.add(message(topic, bodyBytes));
        }
        SendResult result = producer.send((Collection<Message>) messages);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
        done.addAndGet(count);
    }

    private Message message(String topic, int bodyBytes) {
        return new Message(topic, ByteBuffer.allocate(bodyBytes).putLong(next++).array());
    }

    private SendCallback callback(Semaphore room) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    failure.compareAndSet(null, result.toString());
                }
                done.incrementAndGet();
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.compareAndSet(null, error.toString());
                room.release();
            }
        };
    }

    /** Consumes the whole topic: all numbers below count, each once, with zeros behind it. */
    private String check(String topic, int count, int bodyBytes) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("check-" + topic);
        consumer.setNamesrvAddr(servers);
        consumer.setInstanceName("check-" + topic);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        Taken taken = new Taken(count, bodyBytes);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                taken.note(one.getBody());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return taken.await();
        } finally {
            consumer.shutdown();
        }
    }

    /** What has come of a topic, by many threads. */
    private static final class Taken {
        private final int count;
        private final int bodyBytes;
        private final BitSet seen;
        private String wrong;
        private long first;
        private long last;

        Taken(int count, int bodyBytes) {
            this.count = count;
            this.bodyBytes = bodyBytes;
            this.seen = new BitSet(count);
        }

        void note(byte[] body) {
            ByteBuffer read = ByteBuffer.wrap(body);
            boolean isWhole = body.length == bodyBytes;
            for (int at = NUMBER_BYTES; isWhole && at < bodyBytes; at++) {
                isWhole = body[at] == 0;
            }
            long number = isWhole ? read.getLong() : -1;
            long now = System.nanoTime();
            synchronized (this) {
                if (number < 0 || number >= count) {
                    wrong = "a body that was not sent";
                } else if (seen.get((int) number)) {
                    wrong = "message " + number + " came twice";
                } else {
                    seen.set((int) number);
                    first = first == 0 ? now : first;
                    last = now;
                }
            }
        }

        /** How many came and in what time, once nothing more comes. */
        String await() throws InterruptedException {
            int before = -1;
            for (long waited = 0; waited < PATIENCE_MS; waited += LOOK_MS) {
                Thread.sleep(LOOK_MS);
                synchronized (this) {
                    if (wrong != null) {
                        throw new IllegalStateException(wrong);
                    }
                    if (seen.cardinality() == before && before == count) {
                        return count + " " + (last - first);
                    }
                    waited = seen.cardinality() == before ? waited : 0;
                    before = seen.cardinality();
                }
            }
            throw new IllegalStateException((count - before) + " of " + count + " did not come");
        }
    }
}
