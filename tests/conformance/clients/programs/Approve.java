import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.regex.Pattern;

/** Approves every event in the document at ADDRESS, with an HttpClient at its defaults: it offers h2c. */
public class Approve {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        var url = URI.create("http://" + arguments[0] + "/metadata/scheduledevents?api-version=2020-07-01");
        var document = send(HttpRequest.newBuilder(url));
        var found = Pattern.compile("\"EventId\":\"([^\"]+)\"").matcher(document);
        while (found.find()) {
            var approval = "{\"StartRequests\":[{\"EventId\":\"" + found.group(1) + "\"}]}";
            send(HttpRequest.newBuilder(url).POST(BodyPublishers.ofString(approval)));
        }
        System.out.print(send(HttpRequest.newBuilder(url)));
    }

    private static String send(HttpRequest.Builder request) throws Exception {
        var response = CLIENT.send(request.header("Metadata", "true").build(), BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IllegalStateException(response.statusCode() + ": " + response.body());
        }
        return response.body();
    }
}
