// SPDX-License-Identifier: Apache-2.0

// Package chart draws bars, dots, lines and points as SVG that follows the reader's light or dark scheme. It knows
// values, names and inks, and neither the metrics nor the kinds of loads.
package chart
