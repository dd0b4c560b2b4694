//go:build gcs

package remote

import _ "gocloud.dev/blob/gcsblob" // gs://, with 30 MB of the program.
