// SPDX-License-Identifier: Apache-2.0

// Package soak has what a soak of several balancers is judged by, without any of what runs it: the sequence of
// faults that a seed stands for (schedule.go), why a connection may have broken (explain.go), and what a run came
// to (summary.go).
package soak
