// How long OpenMP's threads spin while they wait for each other.
#pragma once

namespace lockstep {

// Their default is milliseconds, in which they take the cores from other programs, and from the
// threads that they wait for. OpenMP reads the setting while it is loaded, so this starts the
// program again, with a bound that suits what else this machine does. Returns if that is
// impossible, or if the environment has a setting already.
void bound_spinning(char** arguments);

}  // namespace lockstep
