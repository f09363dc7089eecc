"""The composition root: builds the worker and the control shell, and is the one place that knows all parts.

Every strategy is chosen here, once, at build time.  Holds the entry points of both kinds of child process; the
supervisor starts them by module name and never imports them.
"""
