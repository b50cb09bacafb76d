# Stop Windows services and IIS application pools before an event. Afterwards, start those that it stopped.
#
# This script has never been run, because PowerShell is not available to the tests. First try it on a machine that you
# can afford to lose.
#
# Settings are in %ProgramData%\forewarn\hooks\windows-services.psd1:
#   @{ Services = @('MyApp', 'MyWorker'); AppPools = @('DefaultAppPool') }
# They are stopped in this order, and started in reverse order. Services that were already stopped stay stopped.
# Services that are stopped for two events start after the second.

Set-StrictMode -Version 2
$ErrorActionPreference = 'Stop'

$Name = 'windows-services'
$Folder = Join-Path $env:ProgramData 'forewarn\hooks'
$Events = Join-Path $Folder "$Name\events"
$Record = Join-Path $Folder "$Name\taken"

function Exit-With([int] $Status, [string] $Message) {
    Write-Output "${Name}: $Message"
    exit $Status
}

# A thing is 'service NAME' or 'pool NAME'.
function Get-State([string] $Thing) {
    $kind, $it = $Thing -split ' ', 2
    if ($kind -eq 'service') { return [string] (Get-Service -Name $it).Status }
    Import-Module WebAdministration
    return [string] (Get-WebAppPoolState -Name $it).Value
}

function Stop-Thing([string] $Thing) {
    $kind, $it = $Thing -split ' ', 2
    if ($kind -eq 'service') { Stop-Service -Name $it } else { Stop-WebAppPool -Name $it }
}

function Start-Thing([string] $Thing) {
    $kind, $it = $Thing -split ' ', 2
    if ($kind -eq 'service') { Start-Service -Name $it } else { Start-WebAppPool -Name $it }
}

function Get-Taken {
    if (Test-Path -LiteralPath $Record) { Get-Content -LiteralPath $Record }
}

function Stop-All {
    $settings = Import-PowerShellDataFile -LiteralPath (Join-Path $Folder "$Name.psd1")
    $things = @()
    if ($settings.ContainsKey('Services')) { $things += $settings.Services | ForEach-Object { "service $_" } }
    if ($settings.ContainsKey('AppPools')) { $things += $settings.AppPools | ForEach-Object { "pool $_" } }
    New-Item -ItemType File -Force -Path (Join-Path $Events $env:EVENT_ID) | Out-Null
    foreach ($thing in $things) {
        if ((Get-State $thing) -in 'Stopped', 'StopPending', 'Stopping') { continue }
        # Record it before stopping it. The last one comes first, as it is started first.
        $taken = @(Get-Taken)
        if ($thing -notin $taken) { Set-Content -LiteralPath $Record -Value (@($thing) + $taken) }
        Stop-Thing $thing
    }
    $left = @($things | Where-Object { (Get-State $_) -ne 'Stopped' })
    if ($left) { Exit-With 75 "not yet stopped: $($left -join ', ')" }
    Exit-With 0 "stopped: $($things -join ', ')"
}

function Start-All {
    Remove-Item -LiteralPath (Join-Path $Events $env:EVENT_ID) -ErrorAction SilentlyContinue
    $others = @(Get-ChildItem -LiteralPath $Events -Name)
    if ($others) { Exit-With 0 "stays stopped for $($others -join ', ') (if that is over, remove it from $Events)" }
    $taken = @(Get-Taken)
    if (-not $taken) { Exit-With 0 'nothing to start' }
    try {
        foreach ($thing in $taken) {
            if ((Get-State $thing) -eq 'Stopped') { Start-Thing $thing }
        }
    }
    catch {
        # A service may not be available yet, right after a boot.
        Exit-With 75 "cannot start yet: $_"
    }
    Remove-Item -LiteralPath $Record
    Exit-With 0 "started: $($taken -join ', ')"
}

if ($env:EVENT_PHASE -notin 'scheduled', 'recovered', 'canceled') { Exit-With 0 "nothing to do in phase $env:EVENT_PHASE" }
if ($env:EVENT_ID -notmatch '^[A-Za-z0-9_-]+$') { Exit-With 1 'EVENT_ID is missing, or cannot be the name of a file' }
New-Item -ItemType Directory -Force -Path $Events | Out-Null
# Hooks of two events may run at the same time.
$mutex = New-Object System.Threading.Mutex $false, "Global\forewarn-$Name"
try { [void] $mutex.WaitOne() } catch [System.Threading.AbandonedMutexException] { }
if ($env:EVENT_PHASE -eq 'scheduled') { Stop-All } else { Start-All }
