// SPDX-License-Identifier: Apache-2.0

package draft

// Keyword is a word of a dialect that a reader passes over, since the requests and connections that a service gets are
// the same with it and without it.
type Keyword struct {
	// Where is the block or section that the word stands in; a word may stand in several, and do more in one of them.
	Where, Name string
	// Example is a line that has the word, without indentation.
	Example string
	// Why is the reason for which the word has no effect, for a remark.
	Why string
}

// Keywords are the words that a reader passes over, each in a place.
type Keywords []Keyword

// Why returns why a word changes nothing where it stands, and whether it is one of those.
func (k Keywords) Why(where, name string) (string, bool) {
	for _, word := range k {
		if word.Where == where && word.Name == name {
			return word.Why, true
		}
	}
	return "", false
}
