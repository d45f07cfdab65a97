// SPDX-License-Identifier: Apache-2.0

// Package chart draws bars, dots, lines and points as SVG that follows the reader's light or dark scheme. It handles
// values, names and inks, and depends neither on the metrics nor on the kinds of loads.
package chart
