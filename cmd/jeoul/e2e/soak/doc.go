// SPDX-License-Identifier: Apache-2.0

// Package soak has the judgement of a soak of several balancers, without the parts that run it: the sequence of faults
// that a seed stands for (schedule.go), why a connection may have broken (explain.go), and the result of a run
// (summary.go).
package soak
