// SPDX-License-Identifier: Apache-2.0

package chart

//go:generate go run ../../../../scripts/fontmetrics
