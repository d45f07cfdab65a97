// SPDX-License-Identifier: Apache-2.0

package cmdkit

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// TimeText formats a time for a person, and returns a dash for the zero time.
func TimeText(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}

// OneLine keeps text from elsewhere, such as a backend's answer, in its row, and removes control characters of a
// terminal.
func OneLine(cell string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text.StripEscape(cell))
}

// CheckTime formats the duration of a health check.
func CheckTime(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// SinceText returns "(since TIME)"; empty if the time is not known.
func SinceText(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " (since " + since.Local().Format(time.DateTime) + ")"
}

// SecondsText formats seconds as a duration.
func SecondsText(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).String()
}

// Joined returns texts, separated by commas.
func Joined[T fmt.Stringer](list []T) string {
	var texts []string
	for _, item := range list {
		texts = append(texts, item.String())
	}
	return strings.Join(texts, ", ")
}
