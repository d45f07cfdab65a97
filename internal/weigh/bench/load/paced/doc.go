// SPDX-License-Identifier: Apache-2.0

// Package paced asks a web server at times that are fixed beforehand: an open loop,
// in which a slow answer does not hold back the requests that follow it.
//
// A request's latency counts from when it was to be sent, not from when it was. A
// closed loop, and a generator that counts from the sending, leave out the very
// requests that would have met a stalled server: "coordinated omission" (Gil Tene,
// How NOT to Measure Latency, 2013; https://github.com/giltene/wrk2 does the same for
// kept connections).
package paced
