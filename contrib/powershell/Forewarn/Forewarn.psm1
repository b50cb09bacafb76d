# Scheduled events from PowerShell: a thin layer over the control API (operators) and over the metadata endpoint
# (inside a virtual machine). Paths are written as in the OpenAPI document, and tests/http/control/test_powershell.py compares.

Set-StrictMode -Version Latest

$script:Server = $null
$script:Token = $null

# ---- what the others use ----

function Select-Given {
    # Return the entries of a table that have a value.
    param([hashtable] $Table)

    $given = @{}
    foreach ($key in $Table.Keys) {
        $value = $Table[$key]
        if ($null -eq $value) { continue }
        if (($value -is [string] -or $value -is [array]) -and $value.Length -eq 0) { continue }
        $given[$key] = $value
    }
    return $given
}

function Expand-Route {
    # Fill the braces of a path, escaped, and add the query.
    param([string] $Path, [hashtable] $Values, [hashtable] $Query)

    foreach ($name in $Values.Keys) {
        $Path = $Path.Replace("{$name}", [uri]::EscapeDataString([string] $Values[$name]))
    }
    $pairs = foreach ($name in $Query.Keys) {
        foreach ($value in @($Query[$name])) {
            '{0}={1}' -f $name, [uri]::EscapeDataString(([string] $value))
        }
    }
    if ($pairs) { return '{0}?{1}' -f $Path, ($pairs -join '&') }
    return $Path
}

function Assert-Private {
    # Refuse to send a token where everybody on the network could read it.
    param([string] $Server)

    $uri = [uri] $Server
    if ($uri.Scheme -eq 'https' -or $uri.IsLoopback) { return }
    if ($env:FOREWARN_INSECURE_CONTROL -in '1', 'on', 't', 'true', 'y', 'yes') { return }
    throw "$Server is not encrypted, so the token is not sent; use https, or set FOREWARN_INSECURE_CONTROL=true."
}

function Invoke-ForewarnControl {
    # Ask the control API; a refusal is thrown as the sentence that the server gives.
    param(
        [Parameter(Mandatory)] [string] $Method,
        [Parameter(Mandatory)] [string] $Path,
        [hashtable] $Values = @{},
        [hashtable] $Query = @{},
        [hashtable] $Body
    )

    $server = if ($script:Server) { $script:Server } elseif ($env:FOREWARN_SERVER) { $env:FOREWARN_SERVER } else { 'http://127.0.0.1:8170' }
    if ($server -notmatch '^\w+://') { $server = "http://$server" }
    $token = if ($script:Token) { $script:Token } else { $env:FOREWARN_TOKEN }
    Assert-Private -Server $server
    $request = @{
        Method             = $Method
        MaximumRedirection = 0
        Uri                = '{0}/api/v1/{1}' -f $server.TrimEnd('/'), (Expand-Route -Path $Path -Values $Values -Query (Select-Given $Query))
        Headers            = @{ Authorization = "Bearer $token" }
        ErrorAction        = 'Stop'
    }
    if ($null -ne $Body) {
        $json = ConvertTo-Json -InputObject (Select-Given $Body) -Depth 8 -Compress
        $request.Body = [Text.Encoding]::UTF8.GetBytes($json)
        $request.ContentType = 'application/json'
    }
    try {
        return Invoke-RestMethod @request
    }
    catch {
        $problem = $null
        if ($_.ErrorDetails -and $_.ErrorDetails.Message) {
            try { $problem = ConvertFrom-Json -InputObject $_.ErrorDetails.Message } catch { $problem = $null }
        }
        if ($problem -and $problem.PSObject.Properties['detail']) { throw $problem.detail }
        throw
    }
}

function Connect-Forewarn {
    <#
    .SYNOPSIS
    Set the server and token for the other functions; default: FOREWARN_SERVER and FOREWARN_TOKEN.
    .EXAMPLE
    Connect-Forewarn -Server https://forewarn.example.com:8170 -Token (Get-Content admin.token)
    #>
    [CmdletBinding()]
    param([Parameter(Mandatory)] [string] $Server, [string] $Token)

    $script:Server = $Server
    $script:Token = $Token
}

# ---- inside a virtual machine ----

function Get-ForewarnScheduledEvent {
    <#
    .SYNOPSIS
    Read this virtual machine's scheduled events from the metadata endpoint.
    .EXAMPLE
    Get-ForewarnScheduledEvent | Where-Object EventType -eq Reboot
    #>
    [CmdletBinding()]
    param([string] $Endpoint = 'http://169.254.169.254', [string] $ApiVersion = '2020-07-01')

    $uri = '{0}/metadata/scheduledevents?api-version={1}' -f $Endpoint.TrimEnd('/'), $ApiVersion
    $document = Invoke-RestMethod -Method Get -Uri $uri -Headers @{ Metadata = 'true' } -ErrorAction Stop
    $document.Events
}

function Approve-ForewarnScheduledEvent {
    <#
    .SYNOPSIS
    Approve an event at the metadata endpoint, so that it may start before its NotBefore.
    .EXAMPLE
    Get-ForewarnScheduledEvent | Approve-ForewarnScheduledEvent
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param(
        [Parameter(Mandatory, ValueFromPipelineByPropertyName)] [string] $EventId,
        [string] $Endpoint = 'http://169.254.169.254',
        [string] $ApiVersion = '2020-07-01'
    )

    process {
        if (-not $PSCmdlet.ShouldProcess($EventId, 'Approve')) { return }
        $uri = '{0}/metadata/scheduledevents?api-version={1}' -f $Endpoint.TrimEnd('/'), $ApiVersion
        $body = ConvertTo-Json -InputObject @{ StartRequests = @(@{ EventId = $EventId }) } -Depth 4 -Compress
        $null = Invoke-RestMethod -Method Post -Uri $uri -Headers @{ Metadata = 'true' } -Body $body -ContentType 'application/json' -ErrorAction Stop
    }
}

# ---- operators: events ----

function Get-ForewarnEvent {
    <#
    .SYNOPSIS
    Return one event with its history, or the newest events by status, virtual machine or scope.
    .EXAMPLE
    Get-ForewarnEvent -Status Scheduled, Started -VM web-0
    #>
    [CmdletBinding(DefaultParameterSetName = 'List')]
    param(
        [Parameter(Mandatory, ParameterSetName = 'One', ValueFromPipelineByPropertyName)] [Alias('event_id')] [string] $EventId,
        [Parameter(ParameterSetName = 'List')] [ValidateSet('Scheduled', 'Started', 'Completed', 'Canceled')] [string[]] $Status,
        [Parameter(ParameterSetName = 'List')] [string] $VM,
        [Parameter(ParameterSetName = 'List')] [string] $Scope,
        [Parameter(ParameterSetName = 'List')] [ValidateRange(1, 10000)] [int] $Limit = 1000
    )

    process {
        if ($PSCmdlet.ParameterSetName -eq 'One') {
            return Invoke-ForewarnControl -Method Get -Path 'events/{event_id}' -Values @{ event_id = $EventId }
        }
        (Invoke-ForewarnControl -Method Get -Path 'events' -Query @{ status = $Status; vm = $VM; scope = $Scope; limit = $Limit }).events
    }
}

function Get-ForewarnEventHistory {
    <#
    .SYNOPSIS
    Return the events that have ended, with their outcomes.
    .EXAMPLE
    Get-ForewarnEventHistory -VM web-0 -Since '2h ago'
    #>
    [CmdletBinding()]
    param([string] $VM, [string] $Scope, [string] $Since, [string] $Until, [ValidateRange(1, 10000)] [int] $Limit = 1000)

    (Invoke-ForewarnControl -Method Get -Path 'events/history' -Query @{ vm = $VM; scope = $Scope; since = $Since; until = $Until; limit = $Limit }).events
}

function Get-ForewarnEventExplanation {
    <#
    .SYNOPSIS
    Explain why an event does not proceed.
    .EXAMPLE
    (Get-ForewarnEventExplanation -EventId $id).reasons.sentence
    #>
    [CmdletBinding()]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [Alias('event_id')] [string] $EventId)

    process { Invoke-ForewarnControl -Method Get -Path 'events/{event_id}/explain' -Values @{ event_id = $EventId } }
}

function New-ForewarnEvent {
    <#
    .SYNOPSIS
    Announce an event for each scope and update domain of the resources.
    .EXAMPLE
    New-ForewarnEvent -EventType Reboot -Resource web-0, web-1 -NotBefore 20m -DryRun
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param(
        [Parameter(Mandatory)] [ValidateSet('Freeze', 'Reboot', 'Redeploy', 'Preempt', 'Terminate')] [string] $EventType,
        [Parameter(Mandatory)] [string[]] $Resource,
        [string] $NotBefore,
        [Nullable[int]] $DurationInSeconds,
        [string] $Description,
        [switch] $Started,
        [switch] $DryRun
    )

    if (-not $PSCmdlet.ShouldProcess(($Resource -join ', '), "Announce $EventType")) { return }
    (Invoke-ForewarnControl -Method Post -Path 'events' -Query @{ dry_run = $(if ($DryRun) { 'true' }) } -Body @{ event_type = $EventType; resources = @($Resource); not_before = $NotBefore; duration_in_seconds = $DurationInSeconds; description = $Description; started = $(if ($Started) { $true }) }).events
}

function Approve-ForewarnEvent {
    <#
    .SYNOPSIS
    Approve an event for all its virtual machines; it then starts as soon as possible.
    .EXAMPLE
    Get-ForewarnEvent -Status Scheduled | Approve-ForewarnEvent
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [Alias('event_id')] [string] $EventId, [switch] $DryRun)

    process {
        if (-not $PSCmdlet.ShouldProcess($EventId, 'Approve')) { return }
        Invoke-ForewarnControl -Method Post -Path 'events/{event_id}/approve' -Values @{ event_id = $EventId } -Query @{ dry_run = $(if ($DryRun) { 'true' }) }
    }
}

function Set-ForewarnEventNotBefore {
    <#
    .SYNOPSIS
    Postpone an event, as far as the policy of its scope allows.
    .EXAMPLE
    Set-ForewarnEventNotBefore -EventId $id -NotBefore 1h
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [Alias('event_id')] [string] $EventId, [Parameter(Mandatory)] [string] $NotBefore, [switch] $DryRun)

    process {
        if (-not $PSCmdlet.ShouldProcess($EventId, "Postpone to $NotBefore")) { return }
        Invoke-ForewarnControl -Method Post -Path 'events/{event_id}/postpone' -Values @{ event_id = $EventId } -Query @{ dry_run = $(if ($DryRun) { 'true' }) } -Body @{ not_before = $NotBefore }
    }
}

function Start-ForewarnEvent {
    <#
    .SYNOPSIS
    Start an event now, regardless of approvals, NotBefore and host operation.
    .EXAMPLE
    Start-ForewarnEvent -EventId $id -Confirm:$false
    #>
    [CmdletBinding(SupportsShouldProcess, ConfirmImpact = 'High')]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [Alias('event_id')] [string] $EventId)

    process {
        if (-not $PSCmdlet.ShouldProcess($EventId, 'Start now, whoever is not ready')) { return }
        Invoke-ForewarnControl -Method Post -Path 'events/{event_id}/start' -Values @{ event_id = $EventId }
    }
}

function Complete-ForewarnEvent {
    <#
    .SYNOPSIS
    Complete a Started event.
    .EXAMPLE
    Complete-ForewarnEvent -EventId $id -Failed -Reason 'no boot'
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [Alias('event_id')] [string] $EventId, [switch] $Failed, [string] $Reason)

    process {
        if (-not $PSCmdlet.ShouldProcess($EventId, 'Complete')) { return }
        Invoke-ForewarnControl -Method Post -Path 'events/{event_id}/complete' -Values @{ event_id = $EventId } -Body @{ outcome = $(if ($Failed) { 'failed' } else { 'succeeded' }); reason = $Reason }
    }
}

function Stop-ForewarnEvent {
    <#
    .SYNOPSIS
    Cancel a Scheduled event.
    .EXAMPLE
    Stop-ForewarnEvent -EventId $id -Reason 'not today'
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [Alias('event_id')] [string] $EventId, [string] $Reason, [switch] $DryRun)

    process {
        if (-not $PSCmdlet.ShouldProcess($EventId, 'Cancel')) { return }
        Invoke-ForewarnControl -Method Post -Path 'events/{event_id}/cancel' -Values @{ event_id = $EventId } -Query @{ dry_run = $(if ($DryRun) { 'true' }) } -Body @{ reason = $Reason }
    }
}

# ---- operators: virtual machines, maintenances and the clock ----

function Get-ForewarnVM {
    <#
    .SYNOPSIS
    Return one virtual machine, or all of the fleet, in fleet order.
    .EXAMPLE
    Get-ForewarnVM | Group-Object host
    #>
    [CmdletBinding()]
    param([Parameter(ValueFromPipelineByPropertyName)] [string] $Name, [ValidateRange(1, 10000)] [int] $Limit = 1000)

    process {
        if ($Name) { return Invoke-ForewarnControl -Method Get -Path 'virtual-machines/{name}' -Values @{ name = $Name } }
        (Invoke-ForewarnControl -Method Get -Path 'virtual-machines' -Query @{ limit = $Limit }).virtual_machines
    }
}

function Restart-ForewarnVM {
    <#
    .SYNOPSIS
    Restart a virtual machine as its owner would: announce a Reboot.
    .EXAMPLE
    Restart-ForewarnVM -Name web-0
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [string] $Name, [switch] $DryRun)

    process {
        if (-not $PSCmdlet.ShouldProcess($Name, 'Restart')) { return }
        Invoke-ForewarnControl -Method Post -Path 'virtual-machines/{name}/restart' -Values @{ name = $Name } -Query @{ dry_run = $(if ($DryRun) { 'true' }) }
    }
}

function Remove-ForewarnVM {
    <#
    .SYNOPSIS
    Remove a virtual machine from the fleet.
    .EXAMPLE
    Remove-ForewarnVM -Name web-0 -DryRun
    #>
    [CmdletBinding(SupportsShouldProcess, ConfirmImpact = 'High')]
    param([Parameter(Mandatory, ValueFromPipelineByPropertyName)] [string] $Name, [switch] $DryRun)

    process {
        if (-not $DryRun -and -not $PSCmdlet.ShouldProcess($Name, 'Take out of the fleet')) { return }
        Invoke-ForewarnControl -Method Delete -Path 'virtual-machines/{name}' -Values @{ name = $Name } -Query @{ dry_run = $(if ($DryRun) { 'true' }) }
    }
}

function Get-ForewarnMaintenance {
    <#
    .SYNOPSIS
    Return one Maintenance with its steps, or all of them.
    .EXAMPLE
    Get-ForewarnMaintenance | Where-Object status -in held, stuck
    #>
    [CmdletBinding()]
    param([Parameter(ValueFromPipelineByPropertyName)] [Alias('maintenance_id')] [string] $MaintenanceId)

    process {
        if ($MaintenanceId) { return Invoke-ForewarnControl -Method Get -Path 'maintenances/{maintenance_id}' -Values @{ maintenance_id = $MaintenanceId } }
        (Invoke-ForewarnControl -Method Get -Path 'maintenances').maintenances
    }
}

function Start-ForewarnMaintenance {
    <#
    .SYNOPSIS
    Start a Maintenance of scopes and virtual machines, or of hosts.
    .EXAMPLE
    (Start-ForewarnMaintenance -EventType Freeze -Scope web -DryRun).remaining
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param(
        [Parameter(Mandatory)] [ValidateSet('Freeze', 'Reboot', 'Redeploy', 'Preempt', 'Terminate')] [string] $EventType,
        [string[]] $Scope = @(),
        [string[]] $VM = @(),
        [string[]] $HostName = @(),
        [string] $Description,
        [Nullable[int]] $DurationInSeconds,
        [switch] $DryRun
    )

    if (-not $PSCmdlet.ShouldProcess((($Scope + $VM + $HostName) -join ', '), "Begin a Maintenance ($EventType)")) { return }
    Invoke-ForewarnControl -Method Post -Path 'maintenances' -Query @{ dry_run = $(if ($DryRun) { 'true' }) } -Body @{ event_type = $EventType; scopes = @($Scope); virtual_machines = @($VM); hosts = @($HostName); description = $Description; duration_in_seconds = $DurationInSeconds }
}

function Get-ForewarnClock {
    <#
    .SYNOPSIS
    Return maintenance time, and whether it is virtual.
    .EXAMPLE
    Get-ForewarnClock
    #>
    [CmdletBinding()]
    param()

    Invoke-ForewarnControl -Method Get -Path 'clock'
}

function Step-ForewarnClock {
    <#
    .SYNOPSIS
    Advance virtual time, and do everything that becomes due.
    .EXAMPLE
    Step-ForewarnClock -Duration 15m
    #>
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(Mandatory)] [string] $Duration)

    if (-not $PSCmdlet.ShouldProcess('the virtual clock', "Advance by $Duration")) { return }
    Invoke-ForewarnControl -Method Post -Path 'clock/advance' -Body @{ duration = $Duration }
}
