// SPDX-License-Identifier: Apache-2.0

// Package soak judges a soak of several balancers, without the parts that run it: it has the sequence of faults that a
// seed determines (schedule.go), the reasons why a connection may have broken (explain.go), and the result of a run
// (summary.go).
package soak
