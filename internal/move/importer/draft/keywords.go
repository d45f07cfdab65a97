// SPDX-License-Identifier: Apache-2.0

package draft

// Keyword is a word of a dialect that a reader skips, because a service gets the same requests and connections with and
// without it.
type Keyword struct {
	// Where is the block or section of the word. A word may occur in several, and have an effect in one of them.
	Where, Name string
	// Example is a line that has the word, without indentation.
	Example string
	// Why is the reason why the word has no effect, for a remark.
	Why string
}

// Keywords are the words that a reader skips, each with its place.
type Keywords []Keyword

// Why returns the reason why a word has no effect at a place, and whether it is one of the keywords.
func (k Keywords) Why(where, name string) (string, bool) {
	for _, word := range k {
		if word.Where == where && word.Name == name {
			return word.Why, true
		}
	}
	return "", false
}
