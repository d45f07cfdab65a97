// SPDX-License-Identifier: Apache-2.0

// Package attach attaches the balancer's programs to interfaces, and detaches them: in native or generic XDP, in
// libxdp's dispatcher, by TCX or by a TC filter. It guarantees three things. Programs are replaced atomically, so each
// packet is processed by one of the two. An error names the conflicting program and the remedy. And Close detaches the
// program of a Hold, which outlives the process after Release.
//
// It knows neither services nor pins: the data plane decides which programs go where, and when.
package attach
