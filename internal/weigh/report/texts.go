// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/packed"
)

var (
	//go:embed assets/texts.en.yaml.gz
	englishTexts []byte
	//go:embed assets/texts.ko.yaml.gz
	koreanFile []byte
)

// koreanTexts returns the translator from English into Korean. The files are embedded and a test reads them, so an
// error in them is an error of the build.
var koreanTexts = sync.OnceValue(func() *translator {
	phrases, err := unpackTexts(englishTexts, koreanFile)
	if err != nil {
		panic(fmt.Sprintf("reading the texts of reports: %v", err))
	}
	t := newTranslator(phrases)
	t.language = "ko"
	return t
})

// unpackTexts is pairTexts for compressed files.
func unpackTexts(english, other []byte) ([]phrase, error) {
	english, err := packed.Read(english)
	if err != nil {
		return nil, fmt.Errorf("decompress the English texts: %w", err)
	}
	if other, err = packed.Read(other); err != nil {
		return nil, fmt.Errorf("decompress the texts of the other language: %w", err)
	}
	return pairTexts(english, other)
}

// pairTexts joins the texts of two languages by their ids, in the order of the first.
func pairTexts(english, other []byte) ([]phrase, error) {
	var ordered yaml.Node
	if err := yaml.Unmarshal(english, &ordered); err != nil {
		return nil, fmt.Errorf("in English: %w", err)
	}
	translations := map[string]string{}
	if err := yaml.Unmarshal(other, &translations); err != nil {
		return nil, fmt.Errorf("in the other language: %w", err)
	}
	var phrases []phrase
	if len(ordered.Content) == 0 {
		return nil, nil
	}
	for nodes := ordered.Content[0].Content; len(nodes) > 1; nodes = nodes[2:] {
		id := nodes[0].Value
		text, ok := translations[id]
		if !ok {
			return nil, fmt.Errorf("%s has no translation", id)
		}
		phrases = append(phrases, phrase{id, nodes[1].Value, text})
		delete(translations, id)
	}
	for id := range translations {
		return nil, fmt.Errorf("%s is translated, but has no English text", id)
	}
	return phrases, nil
}
