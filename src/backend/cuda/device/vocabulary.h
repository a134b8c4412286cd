// The vocabulary of kernels: all that a kernel body may use of the machine. This half is for the GPU; vocabulary_host.h
// gives every name a second meaning, one block of threads on the host's processor.
#pragma once
