// Prints what RocketMQ's own filter says of each line "name=value;... TAB expression" of its input.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

public class Verdicts {
    record Message(Map<String, Object> keyValues) implements EvaluationContext {
        public Object get(String name) {
            return keyValues.get(name);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = lines.readLine()) != null; ) {
            String[] parts = line.split("\t", -1);
            out.println(verdict(parts[1].replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r"), parts[0]));
        }
    }

    static String verdict(String text, String properties) {
        Map<String, Object> values = new HashMap<>();
        for (String pair : properties.split(";")) {
            int at = pair.indexOf('=');
            if (at > 0) {
                values.put(pair.substring(0, at), pair.substring(at + 1));
            }
        }
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (MQFilterException | Error error) {
            return "refused";
        }
        try {
            return String.valueOf(expression.evaluate(new Message(values)));
        } catch (Exception error) {
            return "error";
        }
    }
}
