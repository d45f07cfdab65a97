// SPDX-License-Identifier: Apache-2.0

// Package wording writes numbers, ratios, sizes and lists as all forms of a report have them, and cleans texts from
// results files.
package wording

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"
)

// SoftHyphen marks where a column's title may break.
const SoftHyphen = "\u00AD"

// Missing stands where there is no figure.
const Missing = "–"

// tooLong is the magnitude from which a number is written with an exponent.
const tooLong = 1e12

// Decimal formats v with thousands separated and the given number of decimals.
func Decimal(v float64, decimals int) string {
	if math.Abs(v) >= tooLong {
		return fmt.Sprintf("%.3g", v)
	}
	if math.Abs(v) < math.Pow(10, -float64(decimals))/2 {
		v = 0 // Otherwise a small negative number would become "-0".
	}
	s := message.NewPrinter(language.English).Sprintf("%.*f", decimals, v)
	return strings.Replace(s, "-", "−", 1)
}

// DecimalsFor returns how many decimals a column needs so that its smallest
// figure keeps two significant digits, up to three decimals.
func DecimalsFor(values []float64) int {
	smallest, largest := math.Inf(1), 0.0
	for _, v := range values {
		v = math.Abs(v)
		largest = max(largest, v)
		if v > 0 {
			smallest = min(smallest, v)
		}
	}
	d := 0
	for d < 3 && smallest*math.Pow(10, float64(d)) < 10 {
		d++
	}
	switch {
	case largest >= 1e5 || largest == 0:
		return 0
	case largest >= 1e3:
		return min(d, 1)
	}
	return d
}

// Significant formats v with about three significant digits.
func Significant(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return Decimal(v, 0)
	case a >= 10:
		return Decimal(v, 1)
	case a >= 0.01 || a == 0:
		return Decimal(v, 2)
	}
	return fmt.Sprintf("%.2g", v)
}

// Times formats a ratio: "1.92 ×".
func Times(r float64) string { return RatioText(r) + " ×" }

// RatioText formats a ratio for a table or a sentence: "1.92", "0.012".
func RatioText(r float64) string {
	switch {
	case r >= 100:
		return Decimal(r, 0)
	case r >= 10:
		return Decimal(r, 1)
	case r > 0 && r < 0.001:
		return fmt.Sprintf("%.2g", r)
	case r > 0 && r < 0.1:
		return Decimal(r, 3)
	}
	return Decimal(r, 2)
}

// Fraction formats a small ratio as a fraction, "1/12", and a larger one as "0.83 ×".
func Fraction(r float64) string {
	if r > 0 && r <= 0.5 {
		return "1/" + Decimal(math.Round(1/r), 0)
	}
	return Times(r)
}

// PercentMore formats an excess: "+0.4 %".
func PercentMore(v float64) string {
	if v >= 100 {
		return "+" + Decimal(v, 0) + " %"
	}
	return "+" + Decimal(v, 1) + " %"
}

// BytesText formats a size in binary units: "5 KiB".
func BytesText(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if v == math.Trunc(v) {
		return Decimal(v, 0) + " " + units[i]
	}
	return Decimal(v, 1) + " " + units[i]
}

// Short formats a number for an axis whose largest number is given: "250k".
func Short(v, largest float64) string {
	switch {
	case largest >= 1e15:
		return fmt.Sprintf("%.3g", v)
	case largest >= 1e9 && v != 0:
		return trimmed(v/1e9) + "G"
	case largest >= 1e6 && v != 0:
		return trimmed(v/1e6) + "M"
	case largest >= 1e5 && v != 0:
		return trimmed(v/1e3) + "k"
	}
	return trimmed(v)
}

func trimmed(v float64) string {
	s := message.NewPrinter(language.English).Sprint(number.Decimal(v, number.MaxFractionDigits(4)))
	return strings.Replace(s, "-", "−", 1)
}

// Clean makes text from a results file safe to show in any form: control
// characters, which could move a terminal's cursor or break a table, become a
// space or the replacement character.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// List joins words as a sentence does.
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// CleanAll cleans texts and leaves out the empty ones.
func CleanAll(texts []string) []string {
	var out []string
	for _, t := range texts {
		if t = strings.TrimSpace(Clean(t)); t != "" {
			out = append(out, t)
		}
	}
	return out
}

// Counted makes a text for a number of things: "1 core", "2 cores".
func Counted(noun string) func(string) string {
	return func(v string) string {
		if v == "1" {
			return v + " " + noun
		}
		return v + " " + noun + "s"
	}
}
