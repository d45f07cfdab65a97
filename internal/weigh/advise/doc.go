// SPDX-License-Identifier: Apache-2.0

// Package advise recommends a mode, a scheduler and a number of balancers from six answers about a service and from
// measured figures, and gives the figure behind each statement. It only computes; it does not measure.
package advise

//go:generate go run ../../../scripts/evidence -results ../../../docs/results -to evidence.json
