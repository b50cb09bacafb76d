// Makes the calls of the C# sample: WebClient, Json.NET, api-version 2017-03-01; the GET has the
// Metadata header and the POST has not.
//
// SampleClient ADDRESS look      prints the document as the types below understood it
// SampleClient ADDRESS approve   approves everything in the document

using System;
using System.Collections.Generic;
using System.Net;
using Newtonsoft.Json;

public class Notice
{
    public string EventId { get; set; }
    public string EventStatus { get; set; }
    public string EventType { get; set; }
    public string ResourceType { get; set; }
    public List<string> Resources { get; set; }
    public DateTime? NotBefore { get; set; }
}

public class Notices
{
    public string DocumentIncarnation;
    public List<Notice> Events { get; set; }
}

public class Go
{
    public string EventId;
}

public class Approval
{
    public string DocumentIncarnation;
    public List<Go> StartRequests = new List<Go>();
}

public static class SampleClient
{
    public static void Main(string[] args)
    {
        string url = "http://" + args[0] + "/metadata/scheduledevents?api-version=2017-03-01";
        Notices notices = JsonConvert.DeserializeObject<Notices>(Get(url));
        if (args[1] == "look")
        {
            Console.WriteLine(JsonConvert.SerializeObject(notices));
            return;
        }
        var approval = new Approval { DocumentIncarnation = notices.DocumentIncarnation };
        foreach (Notice notice in notices.Events)
        {
            approval.StartRequests.Add(new Go { EventId = notice.EventId });
        }
        Post(url, JsonConvert.SerializeObject(approval));
    }

    private static string Get(string url)
    {
        using (var client = new WebClient())
        {
            client.Headers.Add("Metadata", "true");
            return client.DownloadString(new Uri(url));
        }
    }

    private static void Post(string url, string json)
    {
        using (var client = new WebClient())
        {
            client.Headers.Add("Content-Type", "application/json");
            client.UploadString(url, json);
        }
    }
}
