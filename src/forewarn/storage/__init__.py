"""Where forewarn keeps everything: the Store port on a database.

StoreError                        (declared by the port)
├ StoreUnavailableError           it cannot be written now
├ LeaseLostError                  somebody else is the leader by now
├ DocumentIncarnationError        an incarnation that was shown with other content, or an old one
├ StoreClosedError                it was closed
└ DatabaseError                   the database cannot be used as it is; nothing was changed
  ├ DatabaseUrlError              no database is meant
  ├ PostgresMissingError          psycopg is not installed
  ├ DatabaseInUseError            another server has it open
  ├ DatabaseUnusableError         a directory, no permission, no space
  ├ NotADatabaseError             something else is in it
  ├ DatabaseDamagedError          it was a database once
  ├ BackupRefusedError            a copy would replace what it must not
  ├ CopyRefusedError              it cannot be copied, or is not empty
  ├ DatabaseOutdatedError         an older release made it
  ├ DatabaseUnreleasedError       a version that was never released made it
  └ DatabaseTooNewError           a newer release made it, and no longer works beside this one
"""
