"""The programs of zerofleet with libtorch; the package `zerofleet` finds them here."""
