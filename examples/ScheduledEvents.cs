// Follow scheduled events with C#, without packages; from .NET Framework 4.5 and mono to .NET 10.
//
//   dotnet run ScheduledEvents.cs -- [--once] [COMMAND [ARGUMENTS]]
//
//   mcs -r:System.Net.Http -r:System.Runtime.Serialization ScheduledEvents.cs
//   mono ScheduledEvents.exe [--once] [COMMAND [ARGUMENTS]]
//
// COMMAND is run before an event that names this machine is approved; it finds EVENT_ID and
// EVENT_TYPE in its environment. With --once, end when the first such event is gone.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Threading.Tasks;

[DataContract]
class Event
{
    [DataMember] public string EventId = "", EventStatus = "", EventType = "", NotBefore = "";
    [DataMember] public string[] Resources = new string[0];

    public override string ToString()
    {
        var when = NotBefore == "" ? "" : ", not before " + NotBefore;
        return EventId + " " + EventType + " of " + string.Join(", ", Resources) + when;
    }
}

[DataContract]
class Document
{
    [DataMember(IsRequired = true)] public Event[] Events = new Event[0];
}

static class Program
{
    static readonly string Metadata =
        Environment.GetEnvironmentVariable("FOREWARN_METADATA") ?? "http://169.254.169.254";
    static readonly string EventsUrl = Metadata + "/metadata/scheduledevents?api-version=2020-07-01";
    static readonly string NameUrl =
        Metadata + "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

    // The server knows us by our connection: a proxy cannot ask in our place.
    static readonly HttpClient Http = new HttpClient(new HttpClientHandler { UseProxy = false })
    {
        Timeout = TimeSpan.FromSeconds(10),
    };

    static string etag = "none";

    static void Main(string[] args)
    {
        Follow(args).GetAwaiter().GetResult();
    }

    static async Task Follow(string[] args)
    {
        var once = args.FirstOrDefault() == "--once";
        var command = args.Skip(once ? 1 : 0).ToArray();
        var me = await FindOutWhoIAm();
        Console.WriteLine("I am " + me);

        var known = new Dictionary<string, Event>();
        var toApprove = new HashSet<string>();
        for (;; await Task.Delay(1000))
        {
            var events = await Poll();
            if (events != null)
            {
                var before = known;
                known = events.GroupBy(each => each.EventId).ToDictionary(same => same.Key, same => same.First());
                foreach (var each in known.Values)
                {
                    Event was;
                    before.TryGetValue(each.EventId, out was);
                    if (was != null && was.EventStatus == each.EventStatus) continue;
                    Console.WriteLine("{0} {1}", each.EventStatus.ToLowerInvariant(), each);
                    if (each.EventStatus == "Scheduled" && each.Resources.Contains(me) && Drain(command, each))
                    {
                        toApprove.Add(each.EventId);
                    }
                }
                // Completed or canceled: the event leaves the document, and nobody says which.
                foreach (var gone in before.Values.Where(each => !known.ContainsKey(each.EventId)))
                {
                    Console.WriteLine("gone {0}", gone);
                    if (once && gone.Resources.Contains(me)) return;
                }
            }
            toApprove.IntersectWith(known.Keys);
            if (toApprove.Count > 0 && await Approve(toApprove)) toApprove.Clear();
        }
    }

    // Resources has this name, which need not be the host name.
    static async Task<string> FindOutWhoIAm()
    {
        for (;; await Task.Delay(1000))
        {
            using (var answer = await Call(HttpMethod.Get, NameUrl))
            {
                var name = answer == null ? "" : await answer.Content.ReadAsStringAsync();
                if (name != "") return name;
            }
        }
    }

    // Nothing when there is nothing new to know: not modified, an empty body, or trouble.
    static async Task<Event[]> Poll()
    {
        using (var answer = await Call(HttpMethod.Get, EventsUrl))
        {
            if (answer == null) etag = "none"; // a server that comes back may count its documents anew
            if (answer == null || answer.StatusCode == HttpStatusCode.NotModified) return null;
            try
            {
                var reader = new DataContractJsonSerializer(typeof(Document));
                var document = (Document)reader.ReadObject(await answer.Content.ReadAsStreamAsync());
                IEnumerable<string> tags;
                etag = answer.Headers.TryGetValues("ETag", out tags) ? tags.First() : "none";
                return document.Events;
            }
            catch (SerializationException trouble)
            {
                Console.Error.WriteLine(trouble.Message);
                return null;
            }
        }
    }

    static async Task<bool> Approve(IEnumerable<string> ids)
    {
        var requests = string.Join(",", ids.Select(id => "{\"EventId\":\"" + id + "\"}"));
        var body = new StringContent("{\"StartRequests\":[" + requests + "]}");
        using (var answer = await Call(HttpMethod.Post, EventsUrl, body))
        {
            if (answer != null) Console.WriteLine("approved {0}", string.Join(" ", ids));
            return answer != null;
        }
    }

    // If this fails, nothing is approved, and the event starts at its time.
    static bool Drain(string[] command, Event about)
    {
        if (command.Length == 0) return true;
        var start = new ProcessStartInfo(command[0], string.Join(" ", command.Skip(1)));
        start.UseShellExecute = false;
        start.EnvironmentVariables["EVENT_ID"] = about.EventId;
        start.EnvironmentVariables["EVENT_TYPE"] = about.EventType;
        using (var process = Process.Start(start))
        {
            process.WaitForExit();
            if (process.ExitCode == 0) return true;
            Console.Error.WriteLine("not approved: {0} ended with {1}", command[0], process.ExitCode);
            return false;
        }
    }

    // Nothing for all that passes by itself: refused, reset, timed out, 404, 410, 429, 5xx.
    static async Task<HttpResponseMessage> Call(HttpMethod method, string url, HttpContent body = null)
    {
        using (var request = new HttpRequestMessage(method, url) { Content = body })
        {
            request.Headers.Add("Metadata", "true");
            // The ETag is a bare number; .NET would insist on quotes.
            if (method == HttpMethod.Get) request.Headers.TryAddWithoutValidation("If-None-Match", etag);
            try
            {
                var answer = await Http.SendAsync(request);
                if (answer.IsSuccessStatusCode || answer.StatusCode == HttpStatusCode.NotModified)
                {
                    return answer;
                }
                Console.Error.WriteLine("{0} answered {1}", method, (int)answer.StatusCode);
                answer.Dispose();
            }
            catch (HttpRequestException trouble)
            {
                Console.Error.WriteLine((trouble.InnerException ?? trouble).Message);
            }
            catch (TaskCanceledException)
            {
                Console.Error.WriteLine("{0} timed out", method);
            }
            return null;
        }
    }
}
