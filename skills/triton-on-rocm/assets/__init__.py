# Ratchet: a package, so that the kernel files can import what is beside them.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
