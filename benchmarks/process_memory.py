"""Memory of this process, as Linux counts it."""


def resident():
    """Returns the bytes that the process holds now."""
    return _read("VmRSS")


def peak():
    """Returns the most bytes that it has held since `reset_peak`."""
    return _read("VmHWM")


def reset_peak():
    """Has the peak start again from what is held now."""
    with open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")


def _read(field):
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return 1024 * int(lines[field].split()[0])
