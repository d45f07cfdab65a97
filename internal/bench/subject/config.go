// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// render fills in a program's configuration.
func render(config *template.Template, values any) ([]byte, error) {
	var text bytes.Buffer
	err := config.Execute(&text, values)
	return text.Bytes(), err
}

// writeConfig fills in a program's configuration and writes it to a file.
func writeConfig(path string, config *template.Template, values any) error {
	text, err := render(config, values)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the configuration %s: %w", filepath.Base(path), err)
	}
	return nil
}
