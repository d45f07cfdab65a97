// SPDX-License-Identifier: Apache-2.0

// Package paced sends requests to a web server at fixed times: an open loop, in which a slow answer does not delay the
// following requests.
//
// The latency of a request counts from the time when it was due, not from when it was sent. A closed loop, and a
// generator that counts from sending, leave out the very requests that would have met a stalled server: "coordinated
// omission" (Gil Tene, How NOT to Measure Latency, 2013; https://github.com/giltene/wrk2 does the same for kept
// connections).
package paced
