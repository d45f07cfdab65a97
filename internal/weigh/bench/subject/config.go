// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"fmt"
	"path/filepath"
	"text/template"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Render returns a program's configuration from a template.
func Render(config *template.Template, values any) ([]byte, error) {
	var text bytes.Buffer
	err := config.Execute(&text, values)
	return text.Bytes(), err
}

// WriteConfig renders a program's configuration and writes it to a file.
func WriteConfig(host *lab.Host, path string, config *template.Template, values any) error {
	text, err := Render(config, values)
	if err == nil {
		err = host.WriteFile(path, text)
	}
	if err != nil {
		return fmt.Errorf("writing the configuration %s: %w", filepath.Base(path), err)
	}
	return nil
}
