// SPDX-License-Identifier: Apache-2.0

// Package attach puts the balancer's programs on interfaces, and takes them off: in native or generic XDP, in libxdp's
// dispatcher, by TCX or by a filter of TC. It promises three things. A program that is exchanged for another is
// exchanged in one step, so each packet meets one of them. A failure is an error that names the program which has the
// place, and the remedy. And the program of a Hold is taken off by Close, or outlives the process after Leave.
//
// It knows neither services nor pins: the data plane decides which programs go where, and when.
package attach
