"""The accuracy report: predicted and measured rows come in, Markdown, CSV and a picture leave."""
