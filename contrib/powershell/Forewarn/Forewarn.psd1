@{
    RootModule        = 'Forewarn.psm1'
    ModuleVersion     = '0.1.0'
    GUID              = '8d0c5c1f-2f0e-4f63-9a55-6a0c8a1d9e47'
    Description       = 'Scheduled events, self-hosted: the control API and the metadata endpoint of forewarn.'
    PowerShellVersion = '5.1'
    FunctionsToExport = @(
        'Connect-Forewarn',
        'Get-ForewarnScheduledEvent',
        'Approve-ForewarnScheduledEvent',
        'Get-ForewarnEvent',
        'Get-ForewarnEventHistory',
        'Get-ForewarnEventExplanation',
        'New-ForewarnEvent',
        'Approve-ForewarnEvent',
        'Set-ForewarnEventNotBefore',
        'Start-ForewarnEvent',
        'Complete-ForewarnEvent',
        'Stop-ForewarnEvent',
        'Get-ForewarnVM',
        'Restart-ForewarnVM',
        'Remove-ForewarnVM',
        'Get-ForewarnMaintenance',
        'Start-ForewarnMaintenance',
        'Get-ForewarnClock',
        'Step-ForewarnClock'
    )
    CmdletsToExport   = @()
    VariablesToExport = @()
    AliasesToExport   = @()
}
