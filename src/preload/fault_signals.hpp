#pragma once
// What a thread meets that touches weights which cannot be had (I-14): the process ends, loudly.

#include "control/run_page.hpp"

namespace resid::preload {

// Puts handlers for SIGBUS and SIGSEGV in front of those installed now. For an address inside an
// app view, once a failure has been recorded in `page`, they say so and let the signal's default
// action end the process; everything else goes to the handler that was there. A handler that the
// program installs later replaces ours: the failure's line has been printed by then all the same.
void install_fault_signals(RunPage& page);

}  // namespace resid::preload
