// SPDX-License-Identifier: Apache-2.0

// Package advise goes from six answers about a service, and from figures that were measured, to a mode, a scheduler
// and a number of balancers, and says of each statement which figure it rests on. It computes, and measures nothing.
package advise

//go:generate go run ../../../scripts/evidence -results ../../../docs/results -to evidence.json
