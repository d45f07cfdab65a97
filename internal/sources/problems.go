// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"slices"

	"github.com/jeoul/jeoul/internal/yamlfile"
)

// where takes the lines out of the problems of a source whose text was composed here: who asked
// has another text, and finds the place by its field.
func where(err error, composed bool, name string) error {
	var problems yamlfile.Problems
	if !composed || !errors.As(err, &problems) {
		return err
	}
	problems = slices.Clone(problems)
	for i := range problems {
		if problems[i].File == name {
			problems[i].Line = 0
		}
	}
	return problems
}
