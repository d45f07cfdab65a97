// SPDX-License-Identifier: Apache-2.0

// Package attach puts the balancer's programs on interfaces, and takes them off: in native or generic XDP, in libxdp's
// dispatcher, by TCX or by a filter of TC. It promises three things. A program that is exchanged for another is
// exchanged in one step, so each packet meets one of them. What cannot be done is an error that names the program which
// has the place, and what to do. And what a Hold keeps is taken off by Close, or outlives the process after Leave.
//
// It knows neither services nor what is pinned where: which programs go where, and when, is the data plane's to say.
package attach
