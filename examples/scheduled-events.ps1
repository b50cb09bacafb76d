<#
.SYNOPSIS
Follow scheduled events with Windows PowerShell 5.1 or PowerShell 7.

.DESCRIPTION
pwsh scheduled-events.ps1 [-Once] [COMMAND [ARGUMENTS]]

COMMAND is run before an event that names this machine is approved; it finds EVENT_ID and EVENT_TYPE
in its environment. With -Once, end when the first such event is gone.
#>
param(
    [switch] $Once,
    [Parameter(Position = 0)] [string] $Command,
    [Parameter(ValueFromRemainingArguments)] [string[]] $Arguments = @()
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$metadata = if ($env:FOREWARN_METADATA) { $env:FOREWARN_METADATA } else { 'http://169.254.169.254' }
$eventsUrl = "$metadata/metadata/scheduledevents?api-version=2020-07-01"
$nameUrl = "$metadata/metadata/instance/compute/name?api-version=2021-02-01&format=text"

# HttpClient and not Invoke-WebRequest: it is the same in both PowerShells, takes 304 for an answer,
# and can be kept from proxies. The server knows us by our connection: a proxy cannot ask for us.
Add-Type -AssemblyName System.Net.Http
$handler = [System.Net.Http.HttpClientHandler]::new()
$handler.UseProxy = $false
$http = [System.Net.Http.HttpClient]::new($handler)
$http.Timeout = [TimeSpan]::FromSeconds(10)

# Throws for all that passes by itself: refused, reset, timed out, 404, 410, 429, 5xx.
function Invoke-Metadata([string] $Method, [string] $Url, [string] $ETag, [string] $Body) {
    $request = [System.Net.Http.HttpRequestMessage]::new([System.Net.Http.HttpMethod]::new($Method), $Url)
    $request.Headers.Add('Metadata', 'true')
    if ($ETag) { [void] $request.Headers.TryAddWithoutValidation('If-None-Match', $ETag) }
    if ($Body) { $request.Content = [System.Net.Http.StringContent]::new($Body) }
    $answer = $http.SendAsync($request).GetAwaiter().GetResult()
    try {
        $status = [int] $answer.StatusCode
        if ($status -notin 200, 304) { throw "$Method answered $status" }
        $tags = $null
        $hasTag = $answer.Headers.TryGetValues('ETag', [ref] $tags)
        [pscustomobject] @{
            Status = $status
            Text   = $answer.Content.ReadAsStringAsync().GetAwaiter().GetResult()
            ETag   = if ($hasTag) { @($tags)[0] } else { '' }
        }
    }
    finally { $answer.Dispose() }
}

function Write-Trouble($Record) { [Console]::Error.WriteLine($Record.Exception.GetBaseException().Message) }

function Format-Event($About) {
    $when = if ($About.NotBefore) { ", not before $($About.NotBefore)" } else { '' }
    "$($About.EventId) $($About.EventType) of $($About.Resources -join ', ')$when"
}

# If this fails, nothing is approved, and the event starts at its time.
function Invoke-Drain($About) {
    if (-not $Command) { return $true }
    $env:EVENT_ID, $env:EVENT_TYPE = $About.EventId, $About.EventType
    $global:LASTEXITCODE = 0
    & $Command @Arguments | Out-Host
    if ($LASTEXITCODE) { [Console]::Error.WriteLine("not approved: $Command ended with $LASTEXITCODE") }
    return $LASTEXITCODE -eq 0
}

# Resources has this name, which need not be the host name.
$me = ''
while (-not $me) {
    try { $me = (Invoke-Metadata GET $nameUrl).Text } catch { Write-Trouble $_ }
    if (-not $me) { Start-Sleep -Seconds 1 }
}
Write-Output "I am $me"

$etag, $known, $toApprove = '', @{}, @()
while ($true) {
    try {
        $answer = Invoke-Metadata GET $eventsUrl $etag
        # A body may be empty, first of all on the first call, and is then no document.
        if ($answer.Status -eq 200 -and $answer.Text) {
            $events = ($answer.Text | ConvertFrom-Json).Events
            $before, $known = $known, @{}
            foreach ($each in $events) { $known[$each.EventId] = $each }
            $etag = $answer.ETag
            foreach ($each in $known.Values) {
                $was = $before[$each.EventId]
                if ($was -and $was.EventStatus -eq $each.EventStatus) { continue }
                Write-Output "$($each.EventStatus.ToLowerInvariant()) $(Format-Event $each)"
                $isAhead = $each.EventStatus -eq 'Scheduled' -and $each.Resources -contains $me
                if ($isAhead -and (Invoke-Drain $each)) { $toApprove += $each.EventId }
            }
            # Completed or canceled: the event leaves the document, and nobody says which.
            foreach ($gone in $before.Values | Where-Object { -not $known.ContainsKey($_.EventId) }) {
                Write-Output "gone $(Format-Event $gone)"
                if ($Once -and $gone.Resources -contains $me) { exit 0 }
            }
        }
        $toApprove = @($toApprove | Where-Object { $known.ContainsKey($_) })
        if ($toApprove) {
            $requests = @($toApprove | ForEach-Object { @{ EventId = $_ } })
            $body = @{ StartRequests = $requests } | ConvertTo-Json -Compress -Depth 3
            [void] (Invoke-Metadata POST $eventsUrl '' $body)
            Write-Output "approved $($toApprove -join ' ')"
            $toApprove = @()
        }
    }
    catch {
        Write-Trouble $_
        $etag = ''  # a server that comes back may count its documents anew
    }
    Start-Sleep -Seconds 1
}
