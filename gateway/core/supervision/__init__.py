"""When the supervisor starts, kills, replaces and stops its children: the policy that the supervisor itself has not.

Pure: the supervisor feeds what it sees (a word on a tether, an end, a signal, the time) and performs the actions that
come back.  ``state`` holds the values, ``step`` the decisions, ``stop`` the ordered end.
"""
