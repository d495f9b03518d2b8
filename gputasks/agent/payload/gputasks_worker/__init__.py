"""What gputasks brings into a worker, in the interpreter of the user's script.

Standard library only, Python 3.8 or later.  The folder above is put on PYTHONPATH; beside this
package it has a `.dist-info` with entry points, by which Lightning finds the progress callback, so
that nodes and images need no installation.

======== ===========================================================================
rank     who this worker is; its log, its events, its signals
failure  how the script failed, for us and for torch
world    whether the ranks trained together
events   one JSON line at a time, appended to $GPUTASKS_EVENTS
progress what native scripts call
watch    what a Lightning trainer is doing, as events
callback the watch as a Lightning callback, and the factories that Lightning calls
======== ===========================================================================
"""
