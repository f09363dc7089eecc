"""The command line `pacekeeper`: a client of the admin API; `serve`, `check`, `version`, `simulate-engine` work alone.

`main` holds the names, options and help of every command; what a command does is in the module of its name and is
loaded when it runs, so that short commands start fast.  `client` asks, `words` and `grid` lay out, `screen` prints.
Nothing here decides anything about the gateway.
"""
